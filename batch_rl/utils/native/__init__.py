"""Native code: compiled functions, functions of C, and mapped files for them."""
