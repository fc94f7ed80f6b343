"""Data makers, test doubles and helper programs that several tests share."""
