"""The one cron evaluator of Reveille."""
