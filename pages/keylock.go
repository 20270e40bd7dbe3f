package pages

import "sync"

// keyLocks is a lock per key, for what changes the object of that key. Keys
// that nobody holds take no memory.
type keyLocks struct {
	mu   sync.Mutex
	held map[Key]*keyLock
}

type keyLock struct {
	mu    sync.Mutex
	users int // guarded by keyLocks.mu
}

// lock waits for the key's lock; the returned function gives it back.
func (k *keyLocks) lock(key Key) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[Key]*keyLock{}
	}
	l := k.held[key]
	if l == nil {
		l = &keyLock{}
		k.held[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.held, key)
		}
	}
}

// Turns has who works on the same page come one at a time. Now and then somebody
// waits for another page.
type Turns [64]sync.Mutex

// Of is the page's lock.
func (t *Turns) Of(id ID) *sync.Mutex { return &t[uint64(id)%uint64(len(t))] }
