"""Loggers beside TensorBoard: Weights & Biases, MLflow, or the user's own."""
