package index

import "github.com/klauspost/compress/zstd"

// manifestCodec compresses manifests: half of one is hex digits, and groups
// repeat the same digests.
type manifestCodec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newManifestCodec() (*manifestCodec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return nil, err
	}
	return &manifestCodec{enc, dec}, nil
}

func (m *manifestCodec) encode(b []byte) []byte          { return m.enc.EncodeAll(b, nil) }
func (m *manifestCodec) decode(b []byte) ([]byte, error) { return m.dec.DecodeAll(b, nil) }

func (m *manifestCodec) close() {
	m.enc.Close()
	m.dec.Close()
}
