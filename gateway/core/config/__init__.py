"""Every setting. The only package that reads the environment and config.yaml."""
