"""What estimators do with views: transformers of single ones."""
