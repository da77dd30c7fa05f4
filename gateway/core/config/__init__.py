"""Every setting, and the only reader of the environment and of config.yaml."""
