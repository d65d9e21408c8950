// The state of one run as the server sends it: a snapshot, and changes to it.
//
// An item or node that changes becomes a new object, so lists redraw only what differs.

export class RunState {
  constructor() {
    this.top = null;
    this.items = [];
    this.nodes = new Map();
    /** The ids of the nodes below each node, in the order of their arrival. */
    this.children = new Map();
    /** The ids of the nodes that changed since the last call of `takeChanges`. */
    this.changed = new Set();
    /** Grows when a node is added, removed or moved, or when the edges change. */
    this.layout = 0;
    this.isHere = true;
    this.stopped = null;
  }

  /** Replaces everything by a snapshot. */
  load({ view, here = true, stopped = null }) {
    const { items = [], nodes = [], ...top } = view;
    this.top = top;
    this.items = items;
    this.nodes = new Map();
    this.children = new Map();
    for (const node of nodes) this.putNode(node);
    this.isHere = here;
    this.stopped = stopped;
    return this;
  }

  /** Applies changes in the order of the server: removals first, then items one by one. */
  apply({ fields = {}, items = [], removed_items: goneItems = [], nodes = [], removed_nodes: goneNodes = [] }) {
    this.top = { ...this.top, ...fields };
    if (fields.edges) this.layout += 1;
    if (goneItems.length) {
      const gone = new Set(goneItems);
      this.items = this.items.filter((item) => !gone.has(item.id));
    }
    for (const change of items) this.applyItem(change);
    for (const id of goneNodes) this.removeNode(id);
    for (const node of nodes) this.putNode(node);
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

  putNode(node) {
    const old = this.nodes.get(node.id);
    this.nodes.set(node.id, node);
    this.changed.add(node.id);
    if (old && old.parent === node.parent && old.layer === node.layer && old.row === node.row) return;
    this.layout += 1;
    if (old && old.parent !== node.parent) this.children.get(old.parent)?.delete(node.id);
    if (!node.parent) return;
    if (!this.children.has(node.parent)) this.children.set(node.parent, new Set());
    this.children.get(node.parent).add(node.id);
  }

  removeNode(id) {
    const old = this.nodes.get(id);
    this.nodes.delete(id);
    this.children.delete(id);
    if (old) this.children.get(old.parent)?.delete(id);
    this.layout += 1;
  }

  /** Returns the ids of the nodes that changed since the last call. */
  takeChanges() {
    const { changed } = this;
    this.changed = new Set();
    return changed;
  }

  /** Returns the state of the run as one word. */
  get standing() {
    return standing(this.top, this.isHere);
  }

  /** Returns the node of the run itself. */
  root() {
    return this.nodes.get(this.top.run);
  }

  /** Returns the nodes directly below a node. */
  below(id) {
    return [...(this.children.get(id) || [])].map((child) => this.nodes.get(child)).filter(Boolean);
  }

  /** Returns all nodes below a node, at any depth, with the node itself. */
  within(id) {
    const found = new Set([id]);
    for (const one of found) for (const child of this.children.get(one) || []) found.add(child);
    return found;
  }
}

/** The words for the endings of a run, by the name of the ending. */
const ENDINGS = { complete: 'answered', best_effort: 'answered', partial: 'partial', cancelled: 'cancelled', failed: 'failed' };

/** The states in which a run has ended. */
const OVER = new Set(['answered', 'partial', 'cancelled', 'failed']);

/** Returns the word for an ending: a name, or an object with the name as its only field. */
function ending(status) {
  const name = status && typeof status === 'object' ? Object.keys(status)[0] : status;
  return ENDINGS[name] || 'failed';
}

/** Returns the state of the run of a view, in the words of the whole page. */
export function standing(top, isHere = true) {
  if (top.ending) return ending(top.ending.status);
  if (top.state === 'running' && !isHere) return 'interrupted';
  return top.state;
}

/** Returns the state of an entry of the list of runs, in the same words. */
export function stateOf(run) {
  if (run.status) return ending(run.status);
  if (run.state === 'answered' || run.state === 'failed') return run.state;
  if (run.paused) return 'paused';
  if (run.state === 'waiting') return 'waiting';
  if (run.queued) return 'queued';
  return run.here === false ? 'interrupted' : 'running';
}

/** Returns `true` if no event follows this state. */
export function isOver(state) {
  return OVER.has(state);
}

/** Returns the elapsed time of a call or node; a running one counts up to now. */
export function elapsed({ started, ended }, now) {
  return started ? (ended || now) - started : undefined;
}

/** Returns the cost in US dollars, if it is known. */
export function cost(usage) {
  return usage ? usage.dollars ?? undefined : undefined;
}
