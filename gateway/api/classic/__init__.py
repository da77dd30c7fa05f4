"""The classic API below `/api/v1/`: aliases of the endpoints under `/v1/`."""
