// The state of one run as the server sends it: a snapshot, and changes to it.
//
// An item or node that changes becomes a new object, so lists redraw only what differs.

export class RunState {
  constructor() {
    this.top = null;
    this.items = [];
    this.nodes = new Map();
  }

  /** Replaces everything by a snapshot. */
  load(view) {
    const { items = [], nodes = [], ...top } = view;
    this.top = top;
    this.items = items;
    this.nodes = new Map(nodes.map((node) => [node.id, node]));
    return this;
  }

  /** Applies changes in the order of the server: removals first, then items one by one. */
  apply({ fields = {}, items = [], removed_items: goneItems = [], nodes = [], removed_nodes: goneNodes = [] }) {
    this.top = { ...this.top, ...fields };
    if (goneItems.length) {
      const gone = new Set(goneItems);
      this.items = this.items.filter((item) => !gone.has(item.id));
    }
    for (const change of items) this.applyItem(change);
    goneNodes.forEach((id) => this.nodes.delete(id));
    for (const node of nodes) this.nodes.set(node.id, node);
    return this;
  }

  applyItem({ index, item, id, append }) {
    if (index !== undefined) {
      this.items.splice(index, 0, item);
      return;
    }
    // Changes nearly always concern the newest items.
    const at = this.items.findLastIndex((known) => known.id === (item ? item.id : id));
    if (at < 0) return;
    const old = this.items[at];
    this.items[at] = item || { ...old, text: (old.text || '') + append, isGrowing: true };
  }

  isOver() {
    return this.top.state === 'ended';
  }

  /** Returns the nodes directly below a node. */
  below(id) {
    return [...this.nodes.values()].filter((node) => node.parent === id);
  }
}

/** Returns the state of a run, or how it ended. */
export function standing(top) {
  return top.state === 'ended' && top.ending ? top.ending.status : top.state;
}

/** Returns the elapsed time of a call or node; a running one counts up to now. */
export function elapsed({ started, ended }, now) {
  return started ? (ended || now) - started : undefined;
}

/** Returns the cost in US dollars, if it is known. */
export function cost(usage) {
  return usage ? usage.dollars ?? undefined : undefined;
}
