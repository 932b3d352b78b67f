"""General helpers: files, locks, machine limits, pickles, gin and seeds."""
