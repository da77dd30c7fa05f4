"""`/v1/organization/*`: usage and costs in OpenAI's form (guarantee §13.4)."""
