"""Tests: `unit` without I/O, `integration` on real services, `acceptance` against the server on a port."""
