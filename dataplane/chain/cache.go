package chain

import (
	lru "container/list"
	"sync"
)

// Cache holds pages of maps and of indexes. Several chains of one process may share it. It is safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	limit int64                             // bytes
	bytes int64                             // guarded by mu; of all pages
	order *lru.List                         // guarded by mu; the page that was used last is in front
	pages map[cacheKey]*lru.Element         // guarded by mu; values are *cachePage
	of    map[cacheOwner]map[int64]struct{} // guarded by mu; the pages of each owner
}

// cacheOwner is a *mapFile or an *index.
type cacheOwner any

type cacheKey struct {
	owner cacheOwner
	page  int64
}

type cachePage struct {
	key     cacheKey
	content []byte // never changed; a change of the page replaces it
}

// DefaultCacheBytes is the limit of a chain that does not share a cache.
const DefaultCacheBytes = 4 << 20

// NewCache returns a cache for at most limitBytes, and for one page at least.
func NewCache(limitBytes int64) *Cache {
	return &Cache{
		limit: limitBytes, order: lru.New(),
		pages: map[cacheKey]*lru.Element{}, of: map[cacheOwner]map[int64]struct{}{},
	}
}

// get returns a page, or nil. The caller must not change it.
func (c *Cache) get(f cacheOwner, page int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.pages[cacheKey{f, page}]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cachePage).content
}

// put adds or replaces a page. The caller must not change content later.
func (c *Cache) put(f cacheOwner, page int64, content []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cacheKey{f, page}
	if e := c.pages[key]; e != nil {
		p := e.Value.(*cachePage)
		c.bytes += int64(len(content) - len(p.content))
		p.content = content
		c.order.MoveToFront(e)
		return
	}
	c.pages[key] = c.order.PushFront(&cachePage{key: key, content: content})
	if c.of[f] == nil {
		c.of[f] = map[int64]struct{}{}
	}
	c.of[f][page] = struct{}{}
	c.bytes += int64(len(content))
	for c.bytes > c.limit && len(c.pages) > 1 {
		c.removeLocked(c.order.Back().Value.(*cachePage).key)
	}
}

// drop removes all pages of an owner.
func (c *Cache) drop(f cacheOwner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for page := range c.of[f] {
		c.removeLocked(cacheKey{f, page})
	}
}

func (c *Cache) removeLocked(key cacheKey) {
	c.bytes -= int64(len(c.pages[key].Value.(*cachePage).content))
	c.order.Remove(c.pages[key])
	delete(c.pages, key)
	delete(c.of[key.owner], key.page)
	if len(c.of[key.owner]) == 0 {
		delete(c.of, key.owner)
	}
}

// len is the number of pages.
func (c *Cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pages)
}
