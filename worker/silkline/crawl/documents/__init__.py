"""From a response to a page: which document it is, what it says, what is stored of it.

reader            any response to a `Fetched`; start reading here
kinds             HTML, Markdown, text or XML, by content type and first bytes
sitemap llms_txt  documents that only list URLs
page_redirects    a page that names another: by refresh, or as its canonical URL
robots_tag        the directives of X-Robots-Tag
record            what is stored of a page, and its limits
plugin_pages      page hooks, and the checks of what plugins return
job_kinds         jobs whose responses a plugin reads
"""
