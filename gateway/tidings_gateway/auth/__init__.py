"""Who may connect and who may publish."""
