package fusefs

import (
	"bytes"
	"encoding/json"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/index"
	"ckptfs/pages"
)

// conversation is an open handle of .find or .identify: write a request, read
// the reply; a further write begins a new request. Over a restart of the daemon
// its lease is kept, and with it an answer that named a generation or an
// identity; anything else is lost: the next read is ESTALE and the client writes
// again.
type conversation struct {
	mu       sync.Mutex
	request  []byte
	reply    []byte
	answered bool
	former   bool   // of a former daemon's handle: what has come of it is lost, an answer can be made again
	base     uint64 // file offset at which the reply begins, for who reads on
	next     uint64 // where who reads the reply from offset 0 has come to
}

// maxRequest bounds a request that is being collected, bytes: the longest
// prefix, and a header.
const maxRequest = 4*index.MaxTokens + 64<<20

func (fs *FS) openConversation(in *fuse.InHeader, n nodeID, flags uint32, out *fuse.OpenOut) error {
	if n.kind() == kindFind {
		if _, err := fs.identity(n); err != nil {
			return err
		}
	} else if _, err := fs.model(makeNode(kindModel, n.object())); err != nil {
		return err
	}
	h, err := fs.openHandle(in, n, flags&^syscall.O_TRUNC, 0)
	if err != nil {
		return err
	}
	h.find = &conversation{}
	out.Fh, out.OpenFlags = h.number(), fuse.FOPEN_DIRECT_IO|fuse.FOPEN_NOFLUSH
	return nil
}

func (fs *FS) writeConversation(h *handle, in *fuse.InHeader, off uint64, data []byte) (uint32, fuse.Status) {
	c := h.find
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.former {
		// Half a request is lost. Only the first piece of a new one can begin here.
		if off != 0 && !beginsRequest(data) {
			return 0, fuse.Status(syscall.ESTALE)
		}
		c.former = false
	}
	if c.answered {
		c.request, c.reply, c.answered = nil, nil, false
		fs.leaseFound(h, 0)
	}
	if len(c.request)+len(data) > maxRequest {
		fs.forgetRequest(h, c)
		return 0, fuse.Status(syscall.EFBIG)
	}
	if err := fs.clients.charge(h, int64(len(c.request)+len(data))); err != nil {
		fs.count.memoryRefused.Add(1)
		fs.forgetRequest(h, c)
		return 0, status(fs.log, err)
	}
	request := data
	if len(c.request) > 0 || h.node.kind() != kindFind {
		c.request = append(c.request, data...)
		request = c.request
	}
	reply, done, err := fs.answer(h, in, request)
	if err != nil {
		fs.forgetRequest(h, c)
		return 0, status(fs.log, err)
	}
	if !done && len(c.request) == 0 {
		// Only a lookup that comes in pieces is copied. data is this request's.
		c.request = bytes.Clone(data)
	}
	if done {
		c.request, c.reply, c.answered, c.base, c.next = nil, reply, true, off+uint64(len(data)), 0
		h.rec.base = c.base
		_ = fs.clients.charge(h, 0) // an answer is short
	}
	return uint32(len(data)), fuse.OK
}

// beginsRequest reports whether the bytes look like the beginning of a request, not
// like a piece of its tokens.
func beginsRequest(b []byte) bool {
	const space = " \t\r\n"
	b, brace := bytes.CutPrefix(bytes.TrimLeft(b, space), []byte("{"))
	return brace && bytes.HasPrefix(bytes.TrimLeft(b, space), []byte(`"`))
}

// forgetRequest lets go of what has come of a request.
func (fs *FS) forgetRequest(h *handle, c *conversation) {
	c.request = nil
	_ = fs.clients.charge(h, 0) // gives back only
}

func (fs *FS) readConversation(h *handle, off uint64, buf []byte) (fuse.ReadResult, fuse.Status) {
	c := h.find
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.former {
		// Made once: what is where may change, and with it the answer's length,
		// before the reader has come to its end.
		reply := fs.answeredBefore(h)
		if reply == nil {
			return nil, fuse.Status(syscall.ESTALE)
		}
		c.reply, c.answered, c.former, c.base = reply, true, false, h.rec.base
	}
	if !c.answered {
		// Nothing was asked yet, or not all of it. Whoever reads is done with
		// writing: the next write begins a new request, not the rest of this.
		fs.forgetRequest(h, c)
		return nil, fuse.EINVAL
	}
	// Who reads on after writing is at base or beyond; pread and who seeks back
	// count from the reply's beginning, and come to base in time.
	rewound := off < c.base || off == c.next
	if c.next = 0; !rewound {
		off -= c.base
	}
	lo := min(off, uint64(len(c.reply)))
	hi := min(lo+uint64(len(buf)), uint64(len(c.reply)))
	if rewound {
		c.next = hi
	}
	return fuse.ReadResultData(c.reply[lo:hi]), fuse.OK
}

// answer carries a request out once it is complete.
func (fs *FS) answer(h *handle, in *fuse.InHeader, request []byte) (reply []byte, done bool, err error) {
	if h.node.kind() == kindFind {
		return fs.answerFind(h, request)
	}
	if !json.Valid(request) {
		if looksUnfinished(request) {
			return nil, false, nil
		}
		return nil, false, syscall.EINVAL
	}
	doc, err := index.ParseDocument(request)
	if err != nil {
		fs.log.Info("refused an identity document", "reason", err)
		return nil, false, err
	}
	i, err := fs.identify(h, in, doc)
	if err != nil {
		return nil, false, err
	}
	h.setLeased(i.ID)
	return []byte(i.Name + "\n"), true, nil
}

// answeredBefore makes the answer again that a former daemon had for the handle;
// nil if it had none that names something.
func (fs *FS) answeredBefore(h *handle) []byte {
	if h.node.kind() == kindIdentify {
		if i := fs.idx.IdentityByID(leasedID(h)); i != nil {
			return []byte(i.Name + "\n")
		}
		return nil
	}
	var r findReply
	g := fs.idx.GenerationByID(leasedID(h))
	if g == nil || fs.offer(h, g, &r) != index.Take {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	return append(b, '\n')
}

// looksUnfinished reports whether more bytes could make the JSON valid.
func looksUnfinished(b []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := dec.Token(); err != nil {
			_, syntax := err.(*json.SyntaxError)
			return !syntax
		}
	}
}

// findReply is what .find answers.
type findReply struct {
	Generation     string     `json:"generation"`
	NumTokens      int        `json:"num_tokens"`
	Kind           index.Kind `json:"kind"`
	DraftPrefixLen uint32     `json:"draft_prefix_len"`
	WorldSize      int        `json:"world_size"`
	Pages          findPages  `json:"pages"`
}

type findPages struct {
	Total int `json:"total"`
	RAM   int `json:"ram"`
	Disk  int `json:"disk"`
}

type findMiss struct {
	Generation *string `json:"generation"`
	Reason     string  `json:"reason"`
}

func (fs *FS) answerFind(h *handle, request []byte) ([]byte, bool, error) {
	req, complete, err := index.ParseFindRequest(request)
	if err != nil || !complete {
		return nil, false, err
	}
	i, err := fs.identity(h.node)
	if err != nil {
		return nil, false, err
	}
	if req.Explain {
		fs.leaseFound(h, 0)
		reply, err := fs.explain(i, req)
		return reply, true, err
	}
	fs.count.lookups.Add(1)
	began := fs.now()
	defer func() { fs.metrics.lookup.Observe(fs.now().Sub(began).Seconds()) }()
	var r findReply
	res := fs.idx.Find(i, req, func(g *index.Generation) index.Verdict {
		return fs.offer(h, g, &r)
	})
	fs.busiest.lookup(i.Model, res.Generation)
	var b []byte
	fs.tiers.Missed(res.Retired.ID, res.Retired.Reason)
	if res.Generation == nil {
		fs.leaseFound(h, 0)
		fs.count.lookupMisses.Add(1)
		b, err = json.Marshal(findMiss{Reason: res.Reason})
	} else {
		if fs.idx.Touch(res.Generation, fs.now().UnixNano()) {
			fs.flushSoon()
		}
		fs.tiers.Hit(res.Generation.ID)
		fs.countRestore(&r)
		b, err = json.Marshal(r)
	}
	return append(b, '\n'), true, err
}

// countRestore counts where the pages of an answer are.
func (fs *FS) countRestore(r *findReply) {
	if r.Pages.Disk == 0 {
		fs.count.hitsRAM.Add(1)
	} else {
		fs.count.hitsDisk.Add(1)
	}
	fs.count.hitPagesRAM.Add(int64(r.Pages.RAM))
	fs.count.hitPagesDisk.Add(int64(r.Pages.Disk))
}

// offer leases a candidate and makes sure that every page of it can be read.
func (fs *FS) offer(h *handle, g *index.Generation, r *findReply) index.Verdict {
	if !fs.leaseFound(h, g.ID) || fs.idx.GenerationByID(g.ID) == nil {
		return index.Skip // retired before the lease was there
	}
	away, ok := fs.readable(g, r)
	if !ok {
		return index.Skip
	}
	fs.tiers.Prefetch(g, away.layout, away.slots, away.pages)
	return index.Take
}

// away are the pages of a generation that are not known to be in RAM.
type away struct {
	layout *index.Layout
	slots  []int
	pages  []*index.Page // of the slots
}

// readable makes the answer that g would be, if every page of it can be read.
// Only the pages that are not in RAM are looked up: mostly there are none.
func (fs *FS) readable(g *index.Generation, r *findReply) (a away, ok bool) {
	c, err := fs.idx.Contents(g)
	if err == nil {
		a = away{layout: c.Layout, slots: fs.tiers.NotInRAM(c.Pages)}
		ids := make([]pages.ID, len(a.slots))
		for n, slot := range a.slots {
			ids[n] = c.Pages[slot]
		}
		a.pages, err = fs.idx.Pages(ids)
	}
	if errorIs(err, syscall.ENOENT) {
		return a, false // removed in this instant, which a lease does not hinder
	}
	if err != nil {
		fs.log.Warn("a candidate of a lookup could not be read", "generation", g.Name, "error", err)
		return a, false
	}
	ram, disk, ok := fs.tiers.Readable(a.pages)
	*r = findReply{
		Generation: g.Name, NumTokens: g.NumTokens, Kind: g.Kind, DraftPrefixLen: g.DraftPrefixLen,
		WorldSize: c.Layout.WorldSize, Pages: findPages{Total: len(c.Pages), RAM: len(c.Pages) - len(a.slots) + ram, Disk: disk},
	}
	return a, ok
}

func leasedID(h *handle) index.ObjectID { return index.ObjectID(atomic.LoadUint64(&h.rec.leased)) }

func (h *handle) setLeased(id index.ObjectID) { atomic.StoreUint64(&h.rec.leased, uint64(id)) }

// identify finds or makes the identity of a document. Making one takes the right
// to write in the model's directory.
func (fs *FS) identify(h *handle, in *fuse.InHeader, doc *index.Document) (*index.Identity, error) {
	m, err := fs.model(makeNode(kindModel, h.node.object()))
	if err != nil {
		return nil, err
	}
	i := m.Identity(doc.Name())
	if i == nil {
		parent := m.Attr()
		if !mayWriteDir(parent, in) {
			return nil, syscall.EACCES
		}
		a := index.Attr{UID: in.Uid, GID: in.Gid, Mode: parent.Mode & 0o777, Mtime: fs.now().UnixNano()}
		a = inheritFrom(parent, a, true)
		if i, err = fs.idx.CreateIdentity(m, doc.Name(), doc, a, 0); err == nil {
			fs.notify.attributesOf(makeNode(kindModel, m.ID))
			return i, nil
		}
		if errno, _ := errnoOf(err); errno != syscall.EEXIST {
			return nil, err
		}
		if i = m.Identity(doc.Name()); i == nil {
			return nil, syscall.ENOENT
		}
	}
	if i.Document() == nil {
		if err := fs.idx.SetDocument(i, doc, 0); err != nil && !errorIs(err, syscall.EEXIST) {
			return nil, err
		}
	}
	return i, nil
}

func errorIs(err error, errno syscall.Errno) bool {
	e, ok := errnoOf(err)
	return ok && e == errno
}
