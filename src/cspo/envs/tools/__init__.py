"""What looks at tasks: parity with recordings, speed, pictures."""
