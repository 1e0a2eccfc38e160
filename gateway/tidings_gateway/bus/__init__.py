"""The link to one Redis primary: subscriber and readers, replaced as a whole."""
