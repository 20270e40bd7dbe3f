package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// soakReport is what `bench soak` prints: what the daemon holds after a little
// work, and after each part of much more of it.
type soakReport struct {
	Machine machine      `json:"machine"`
	States  []*soakState `json:"states"`
}

// soakState is what the daemon holds when nobody uses it.
type soakState struct {
	After string `json:"after"`
	// Opens and Cycles are those done so far. A cycle is stage, write, publish,
	// read, rm -r.
	Opens         int64 `json:"opens"`
	Cycles        int64 `json:"cycles"`
	ResidentBytes int64 `json:"resident_bytes"`
	HeapBytes     int64 `json:"heap_bytes"` // at which the next collection comes: twice what the last one left
	Goroutines    int64 `json:"goroutines"`
	OpenFiles     int64 `json:"open_files"`
	Handles       int64 `json:"handles"`
	Stagings      int64 `json:"stagings"`
	Generations   int64 `json:"generations"`
	ClientBytes   int64 `json:"client_bytes"`
	RAMBytes      int64 `json:"ram_bytes"`
	RAMFiles      int64 `json:"ram_files"`
	IndexBytes    int64 `json:"index_bytes"`
}

const (
	soakPages   = 64 // of each rank of the generation that is opened
	soakThreads = 2  // of each process that opens
	soakers     = 4  // that stage, publish and remove at the same time
)

// soak does very much of what should leave nothing behind.
func (b *bench) soak() error {
	rep := soakReport{Machine: thisMachine(b.base)}
	m, err := b.mount("soak", largeL1)
	if err != nil {
		return err
	}
	dir, err := m.identify(smallPage)
	if err != nil {
		return err
	}
	gen, err := b.store(dir, -1, evenManifest(-1, soakPages, smallPage))
	if err != nil {
		return err
	}
	s := &soaked{b: b, m: m, dir: dir, gen: gen}
	type part struct {
		name          string
		opens, cycles int
	}
	parts := []part{{"a little of both", b.o.opens / 100, b.o.cycles / 100}, {"opens", b.o.opens, 0}}
	const steps = 4 // what is bounded grows to its bound and stays there
	for n := range steps {
		parts = append(parts, part{fmt.Sprintf("cycles %d/%d", n+1, steps), 0, b.o.cycles / steps})
	}
	for _, part := range append(parts, part{"both again", b.o.opens / 10, b.o.cycles / 100}) {
		b.note("%s …", part.name)
		if err := s.work(part.opens, part.cycles); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		state, err := s.state(part.name)
		if err != nil {
			return err
		}
		rep.States = append(rep.States, state)
	}
	return rep.print(b.o.json)
}

// soaked is a mount under such work.
type soaked struct {
	b             *bench
	m             *mounted
	dir, gen      string
	opens, cycles atomic.Int64
}

// work opens, reads and closes pages so many times, and then goes through so many
// cycles.
func (s *soaked) work(opens, cycles int) error {
	jobs := rankJobs("read", s.gen, soakPages, smallPage)
	each := worldSize * soakPages
	for i := range jobs {
		jobs[i].Threads, jobs[i].Rounds = soakThreads, (opens+each-1)/each
	}
	if opens > 0 {
		if _, _, err := s.b.together(jobs...); err != nil {
			return err
		}
		s.opens.Add(int64(jobs[0].Rounds * each))
	}
	return s.cycle(cycles)
}

func (s *soaked) cycle(n int) error {
	var wg sync.WaitGroup
	errs := make(chan error, soakers)
	for range soakers {
		wg.Go(func() {
			for range n / soakers {
				if err := s.cycleOnce(s.cycles.Add(1)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// cycleOnce stores a generation of one small page a rank, which are new, reads
// one, and removes all.
func (s *soaked) cycleOnce(number int64) error {
	if err := s.b.ctx.Err(); err != nil {
		return err
	}
	gen, err := s.b.store(s.dir, 5<<40+number, evenManifest(5<<40+number, 1, smallPage))
	if err != nil {
		return err
	}
	if _, err := os.ReadFile(rankPaths(gen, 1)[0][0]); err != nil {
		return err
	}
	return os.RemoveAll(gen)
}

// state has the kernel forget what it can, which sends a FORGET for each node,
// and looks.
func (s *soaked) state(after string) (*soakState, error) {
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0); err != nil {
		s.b.note("  the kernel's names and nodes stay: %v", err)
	}
	time.Sleep(soakRest)
	st := &soakState{After: after, Opens: s.opens.Load(), Cycles: s.cycles.Load()}
	raw, err := os.ReadFile(filepath.Join(s.m.path, ".ckptfs", "metrics"))
	if err != nil {
		return nil, err
	}
	for metric, to := range map[string]*int64{
		"process_resident_memory_bytes": &st.ResidentBytes, "go_memstats_next_gc_bytes": &st.HeapBytes, "go_goroutines": &st.Goroutines,
		"process_open_fds": &st.OpenFiles, `ckptfs_handles{kind="page"}`: &st.Handles, "ckptfs_stagings": &st.Stagings,
		"ckptfs_generations": &st.Generations, "ckptfs_client_memory_bytes": &st.ClientBytes, `ckptfs_tier_used_bytes{tier="ram"}`: &st.RAMBytes,
	} {
		if *to, err = metricOf(string(raw), metric); err != nil {
			return nil, err
		}
	}
	files, err := countFiles(filepath.Join(s.m.state, "ram"))
	if err != nil {
		return nil, err
	}
	st.RAMFiles = int64(files)
	st.IndexBytes, err = indexBytes(s.m.state)
	return st, err
}

// soakRest is longer than the name of a published staging is kept for late ranks,
// and than the log of the index is.
const soakRest = 12 * time.Second

// metricOf is the value of a metric in the exposition format.
func metricOf(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			var x float64
			_, err := fmt.Sscan(rest, &x)
			return int64(x), err
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

func (rep *soakReport) print(asJSON bool) error {
	if asJSON {
		return printJSON(rep)
	}
	fmt.Printf("%s\n\n", rep.Machine)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, cell func(*soakState) string) {
		fmt.Fprintf(w, "%s\t", name)
		for _, s := range rep.States {
			fmt.Fprintf(w, "%s\t", cell(s))
		}
		fmt.Fprintln(w)
	}
	count := func(name string, f func(*soakState) int64) {
		line(name, func(s *soakState) string { return fmt.Sprint(f(s)) })
	}
	mib := func(name string, f func(*soakState) int64) {
		line(name, func(s *soakState) string { return fmt.Sprintf("%.1f", float64(f(s))/(1<<20)) })
	}
	line("after", func(s *soakState) string { return s.After })
	count("opens so far", func(s *soakState) int64 { return s.Opens })
	count("stage, publish, rm so far", func(s *soakState) int64 { return s.Cycles })
	mib("daemon resident, MiB", func(s *soakState) int64 { return s.ResidentBytes })
	mib("its heap is collected at, MiB", func(s *soakState) int64 { return s.HeapBytes })
	count("its goroutines", func(s *soakState) int64 { return s.Goroutines })
	count("its open files", func(s *soakState) int64 { return s.OpenFiles })
	count("handles on pages", func(s *soakState) int64 { return s.Handles })
	count("stagings", func(s *soakState) int64 { return s.Stagings })
	count("generations", func(s *soakState) int64 { return s.Generations })
	count("bytes held for clients", func(s *soakState) int64 { return s.ClientBytes })
	mib("RAM tier, MiB", func(s *soakState) int64 { return s.RAMBytes })
	count("files in the RAM tier", func(s *soakState) int64 { return s.RAMFiles })
	mib("index on disk, MiB", func(s *soakState) int64 { return s.IndexBytes })
	return w.Flush()
}
