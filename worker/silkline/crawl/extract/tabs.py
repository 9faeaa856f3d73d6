"""Tabs: find the label of each panel, so that the panel is written below it.

Labels and panels are matched by their ids, as ARIA specifies, or by their order if there are as
many labels as panels.
"""

from silkline.crawl.extract.tree import Node

MAX_LABEL = 100
MAX_LISTS = 200


def label_panels(nodes: list[Node]) -> None:
    """Set the label of each panel, and hide the list that the labels come from."""
    panels: list[Node] = []
    lists: list[Node] = []
    for node in nodes:
        if node.role is not None:
            if node.role == 'tablist':
                lists.append(node)
            elif node.role == 'tabpanel':
                panels.append(node)
        elif node.tag == 'label' and node.parent not in lists[-1:] and node.parent is not None:
            lists.append(node.parent)
    if not lists:
        return
    by_id = {identity: panel for panel in panels if (identity := panel.get('id'))}
    by_tab = {tab: panel for panel in panels if (tab := panel.get('aria-labelledby'))}
    for tablist in lists[:MAX_LISTS]:
        if _is_striped(tablist):
            for tab, panel in zip(tablist.elements[1::3], tablist.elements[2::3], strict=True):
                panel.label = ' '.join(tab.source.text.split())[:MAX_LABEL]
                tab.is_hidden = True
            continue
        tabs = _tabs(tablist)
        found = [
            by_id.get(tab.get('aria-controls') or '') or by_tab.get(tab.get('id') or '')
            for tab in tabs
        ]
        if not all(found):
            found = _next_to(tablist, len(tabs)) or found
        for tab, panel in zip(tabs, found, strict=False):
            if panel is not None and not panel.label:
                panel.label = ' '.join(tab.source.text.split())[:MAX_LABEL]
                tablist.is_hidden = True


def _is_striped(node: Node) -> bool:
    """Whether input, label and panel of each tab follow each other, as in tabs without scripts."""
    tags = [child.tag for child in node.elements]
    return (
        len(tags) % 3 == 0
        and set(tags[0::3]) == {'input'}
        and set(tags[1::3]) == {'label'}
        and set(tags[2::3]) == {'div'}
    )


def _tabs(tablist: Node) -> list[Node]:
    if tablist.role != 'tablist':
        inputs = ('label', 'input')
        is_list = all(child.tag in inputs for child in tablist.elements) and not tablist.own
        return [child for child in tablist.elements if child.tag == 'label'] if is_list else []
    tabs: list[Node] = []
    stack = [tablist]
    while stack:
        node = stack.pop()
        if node.role == 'tab':
            tabs.append(node)
        else:
            stack += reversed(node.elements)
    return tabs


def _next_to(tablist: Node, count: int) -> list[Node | None]:
    """The panels that follow the list or the element around it, if there are as many."""
    node = tablist
    for _ in range(2):
        above = node.parent
        if above is None or not count:
            break
        after = above.elements[above.elements.index(node) + 1 :]
        if [one.role for one in after[:count]] == ['tabpanel'] * count:
            return [*after[:count]]
        inner = after[0].elements if after else []
        if len(inner) == count and (tablist.role != 'tablist' or inner[0].role == 'tabpanel'):
            return [*inner]
        node = above
    return []
