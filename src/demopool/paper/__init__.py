"""The paper's figures, tables and statements, made again from somebody's features."""
