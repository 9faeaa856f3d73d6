"""Every claim about speed, as a command; one folder per benchmark."""
