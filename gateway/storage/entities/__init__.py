"""The entity memory: stores, searches, lists and deletes entities (guarantee §11.14 to §11.17, ADR 24)."""
