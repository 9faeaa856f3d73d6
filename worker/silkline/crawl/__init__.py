"""The crawler, as it runs inside a runner. Imports point downwards.

engine/     one job: what is fetched, when, and what an outcome means; start at engine/job.py
fetchers/   one URL: by HTTP, by a browser or by a plugin
documents/  one response: page, sitemap, llms.txt, robots directives
extract/    HTML to facts and Markdown
net/        the only way out

The modules of this folder are leaves that every room may import: options, urls, charsets, retries,
responses (a response or its error), fetched (the outcome of a URL), installed_plugins.
"""
