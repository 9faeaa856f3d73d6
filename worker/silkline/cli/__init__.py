"""What a person types. `main.py` puts the commands together; each folder is one of them or several:
commands/, crawl/ (`silkline crawl`, from a URL to files) and export/ (pages as Markdown files).
"""
