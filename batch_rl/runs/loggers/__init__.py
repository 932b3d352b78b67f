"""Loggers in addition to TensorBoard: Weights & Biases, MLflow, or the user's own."""
