"""`POST /v1/compress`: fits messages into a budget on behalf of other gateways."""
