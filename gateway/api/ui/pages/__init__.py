"""The pages that need no role of their own: login, overview, requests, costs, health, Try it."""
