"""Plain HTTP routes: publishing, positions, health."""
