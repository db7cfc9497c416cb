"""The paper's settings per algorithm and task family, as TOML files."""
