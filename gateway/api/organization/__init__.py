"""`/v1/organization/*`: usage and costs as OpenAI tells them (guarantee §13.4)."""
