"""gin files of protocols, which combine with the file of any offline agent."""
