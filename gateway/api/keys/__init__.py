"""Keys at runtime: administrators create, list, update, rotate and revoke them."""
