"""Which problems of the data sets are copies of one another, however disguised."""
