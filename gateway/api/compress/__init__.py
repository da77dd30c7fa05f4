"""`POST /v1/compress`: fitted messages for other gateways."""
