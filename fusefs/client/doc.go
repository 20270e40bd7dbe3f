// Package client speaks the protocol of a ckptfs mount with nothing but
// ordinary file calls. It needs no daemon address and no library of ckptfs:
// a program that can see the mount can use it.
//
// A rank of an engine stores its part of a generation so:
//
//	dir, err := client.Identify(ctx, "/mnt/ckpt", "org/model", identityJSON)
//	s, err := client.Stage(ctx, dir, client.StageOptions{Name: attempt, Manifest: manifest, Tokens: tokens})
//	defer s.Close()
//	plan, err := s.Plan()
//	for _, page := range plan.MissingOf(rank) {
//		_, err = s.WritePage(ctx, page.Path, bytesOf(page))
//	}
//	published, err := s.Publish(ctx) // any rank; the last one's rename succeeds
//
// and restores the longest prefix of a request so:
//
//	lease, err := client.Find(ctx, dir, tokens, client.FindOptions{})
//	defer lease.Close() // until then nothing of the generation is evicted
//	if lease.Hit() {
//		err = client.ReadPage(filepath.Join(lease.Dir(), client.PagePath(rank, group, position)), buffer)
//	}
//
// All functions repeat a call that a signal interrupted. Those that wait take a
// context, which is looked at between calls: a file call itself cannot be
// cancelled. The types are safe for use by several goroutines, except that a
// Lease is one conversation and belongs to one goroutine at a time.
package client
