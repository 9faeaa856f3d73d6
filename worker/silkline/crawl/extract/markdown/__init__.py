"""A tree of nodes to Markdown (CommonMark, with the tables and the strikethrough of GitHub).

document  a whole page, up to its limit: start reading here
blocks    paragraphs, headings, lists, quotes
inline    the text inside a block: links, images, code, emphasis
escaping  text that is read as text, and placeholders until a line is complete
emphasis  which marks CommonMark would read as such
links     absolute addresses
lists tables code notes formulas   what has rules of its own
"""
