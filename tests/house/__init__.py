"""How livable the code is: `make house`."""
