"""The memory of things: how they are called, how a question names them, and what tools tell of them (guarantee
§11.14 to §11.17)."""
