"""`plumb data prepare`: public data sets in; parquet, manifests and the audit report out."""
