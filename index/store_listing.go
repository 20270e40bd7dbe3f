package index

import (
	"cmp"
	"slices"
	"sort"
)

// object is a child of a directory.
type object interface {
	comparable
	objectID() ObjectID
	objectName() string
}

// listing has the children of a directory by name and in the order of their
// ids, which is a stable order for a directory stream. A lock of the owner
// guards it.
type listing[T object] struct {
	byName map[string]T
	byID   []T
}

func (l *listing[T]) get(name string) T { return l.byName[name] }

func (l *listing[T]) len() int { return len(l.byID) }

// add inserts a child, mostly at the end: ids grow.
func (l *listing[T]) add(c T) {
	if l.byName == nil {
		l.byName = make(map[string]T)
	}
	l.byName[c.objectName()] = c
	l.byID = slices.Insert(l.byID, l.search(c.objectID()), c)
}

// grow makes room for n children in all.
func (l *listing[T]) grow(n int) {
	l.byName = make(map[string]T, n)
	l.byID = make([]T, 0, n)
}

func (l *listing[T]) remove(c T) {
	if i := l.search(c.objectID()); i < len(l.byID) && l.byID[i] == c {
		l.byID = slices.Delete(l.byID, i, i+1)
		delete(l.byName, c.objectName())
	}
}

// search returns the index of the first child with an id of at least id.
func (l *listing[T]) search(id ObjectID) int {
	if n := len(l.byID); n == 0 || l.byID[n-1].objectID() < id {
		return n
	}
	return sort.Search(len(l.byID), func(i int) bool { return l.byID[i].objectID() >= id })
}

// after returns a copy of at most max children with ids greater than id.
func (l *listing[T]) after(id ObjectID, max int) []T {
	i, found := slices.BinarySearchFunc(l.byID, id, func(c T, id ObjectID) int { return cmp.Compare(c.objectID(), id) })
	if found {
		i++
	}
	return slices.Clone(l.byID[i:min(i+max, len(l.byID))])
}
