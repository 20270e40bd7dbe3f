#!/usr/bin/env python3
"""Test vectors of the digest format, computed from its description alone.

It shares no code with the Go package: JSON comes from Python's json module,
SHA-256 from hashlib. Run it to print vectors.json:

    python3 vectors.py > vectors.json
"""
import hashlib
import json
import struct

C = 256


def H(*parts):
    h = hashlib.sha256()
    for p in parts:
        h.update(p)
    return h.digest()


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def string(s):
    b = s.encode("utf-8")
    return u32(len(b)) + b


def canonical(value):
    """Python sorts str by code point; its escapes without ensure_ascii are
    those of RFC 8785, DEL included (which is not escaped)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def make_tokens(spec):
    return [(i * spec["mul"] + spec["add"]) % spec["mod"] for i in range(spec["count"])]


class Chain:
    """Every digest from the definition, nothing incremental."""

    def __init__(self, identity, tokens, media):
        self.tokens, self.media = tokens, media
        self.roots = [H(b"ckptfs token chain v1\0", identity, u32(C))]
        for i in range(len(tokens) // C):
            self.roots.append(self.part(self.roots[i], i * C, (i + 1) * C))

    def part(self, root, lo, hi):
        data = b"".join(u32(t) for t in self.tokens[lo:hi])
        for m in self.media:
            if lo <= m["at"] < hi:
                data += u64(m["at"]) + string(m["digest"])
        return H(root, data)

    def k(self, n):
        return (n + C - 1) // C - 1

    def D(self, n):
        k = self.k(n)
        return self.part(self.roots[k], k * C, n)


def tail_hash(tokens):
    mask = (1 << 64) - 1
    state = 0
    for count, token in enumerate(tokens, 1):
        x = state ^ int.from_bytes(b"ckptfs01", "big")
        x = (x + (count << 32 | token) * 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        state = x ^ (x >> 31)
    return state


def generation(identity, world, manifest, tokens):
    chain = Chain(identity, tokens, manifest.get("media", []))
    n = manifest["num_tokens"]
    written = {k: v for k, v in manifest.items() if k != "request"}
    digest = H(b"ckptfs generation v2\0", chain.D(n), canonical(written))
    name = "%08d-%s-%s" % (n, manifest["kind"], digest.hex()[:40])

    def boundary(g, p):
        return min((p + 1) * g["page_tokens"], n) if g["role"] == "attention" else n

    keys = []
    for rank in range(world):
        for g in manifest["page_groups"]:
            for p in g["positions"]:
                if manifest["schema_version"] == 1:
                    key = H(b"ckptfs page v1\0", digest, u32(rank), string(g["name"]), u32(p))
                else:
                    b = boundary(g, p)
                    extra = b""
                    if g["role"] == "recurrent":
                        extra = u32(p)
                    if g["role"] == "auxiliary":
                        extra = u32(p) + string(manifest["kind"]) + u32(manifest["draft_prefix_len"])
                    key = H(b"ckptfs page v2\0", chain.D(b), u64(b), u32(rank), string(g["name"]),
                            string(g["role"]), u64(g["page_bytes"]), extra)
                keys.append(key.hex())

    k = chain.k(n)
    published = json.loads(json.dumps(manifest))
    published["generation"] = name
    published["identity"] = identity.hex()[:40]
    published["world_size"] = world
    published["prefix"] = {"hash_unit": C, "start_tokens": k * C, "root": chain.roots[k].hex(),
                           "digest": chain.D(n).hex()}
    for g in published["page_groups"]:
        if g["role"] == "attention":
            g["page_digests"] = [chain.D(boundary(g, p)).hex() for p in g["positions"]]
    return {"generation_digest": digest.hex(), "name": name, "keys": keys,
            "tail_hash": "%016x" % tail_hash(tokens[k * C:]),
            "published": canonical(published).decode("utf-8")}


def document(world, **more):
    d = {"schema_version": 1, "target_revision": "sha256:" + "ab" * 32, "draft_revision": "",
         "source_revision": "git:" + "0123456789" * 4, "layout": {"dtype": "fp8", "page": [1, 2, {"b": 1, "a": -5}]},
         "parallel": {"world_size": world, "tensor": world}}
    d.update(more)
    return d


def documents():
    docs = [
        document(4),
        document(1, draft_revision="cd" * 20, adapter_revision="EF" * 32, cache_salt="s\u00e9l \u20ac"),
        # UTF-16 order would put U+1F600 (d83d de00) before U+FFFD and U+E000.
        document(1024, **{"\U0001f600": 1, "\ufffd": 2, "\ue000": 3, "z": [], "": {}, "\"": 4, "\\": 5, "#": 6}),
        document(2, cache_salt="\"\\/\b\t\n\f\r\x00\x01\x1f\x7f\u2028\u2029<>&", big=123456789012345678901234567890,
                 flags=[True, False, None], neg=-9007199254740993),
    ]
    out = []
    for d in docs:
        c = canonical(d)
        out.append({"raw": json.dumps(d, indent=2), "canonical": c.decode("utf-8"),
                    "digest": H(c).hex(), "name": H(c).hex()[:40], "world_size": d["parallel"]["world_size"]})
    return out


def chains(identities):
    out = []
    media = [{"at": 0, "digest": "11" * 20}, {"at": 255, "digest": "22" * 32}, {"at": 256, "digest": "33" * 20},
             {"at": 511, "digest": "44" * 32}, {"at": 700, "digest": "AA" * 20}, {"at": 701, "digest": "55" * 32}]
    specs = [
        ({"count": 40239, "mul": 2654435761, "add": 7, "mod": 151936}, [], [1, 255, 256, 257, 511, 512, 513, 1024, 40192, 40193, 40238, 40239]),
        ({"count": 1000, "mul": 40503, "add": 3, "mod": 2**31}, media, [1, 255, 256, 257, 511, 512, 513, 700, 701, 702, 768, 1000]),
        ({"count": 1, "mul": 1, "add": 2**31 - 1, "mod": 2**31}, [], [1]),
        ({"count": 512, "mul": 0, "add": 0, "mod": 1}, [], [256, 512]),
    ]
    for identity in identities:
        for spec, items, ns in specs:
            tokens = make_tokens(spec)
            c = Chain(identity, tokens, items)
            out.append({"identity": identity.hex(), "tokens": spec, "media": items,
                        "root": c.roots[0].hex(), "last_root": c.roots[-1].hex(),
                        "digests": [{"n": n, "d": c.D(n).hex()} for n in ns]})
    return out


def generations(identities):
    def attention(**kw):
        return dict({"name": "target.attention.0", "role": "attention", "page_tokens": 1024, "page_bytes": 6893568}, **kw)

    def recurrent(**kw):
        return dict({"name": "target.recurrent.0", "role": "recurrent", "page_bytes": 6893568}, **kw)

    def auxiliary(**kw):
        return dict({"name": "target-draft-auxiliary", "role": "auxiliary", "page_bytes": 6893568}, **kw)

    def manifest(n, **kw):
        return dict({"schema_version": 2, "kind": "prompt", "request": "req-7f3a", "num_tokens": n, "draft_prefix_len": 0}, **kw)

    spec = {"count": 40239, "mul": 2654435761, "add": 7, "mod": 151936}
    three = [attention(positions=[0, 1, 2, 39]), recurrent(positions=[39]), auxiliary(positions=[0])]
    media = [{"at": 5, "digest": "11" * 20}, {"at": 300, "digest": "22" * 32}, {"at": 599, "digest": "33" * 20}]
    cases = [
        (0, 4, manifest(40239, page_groups=three), spec),
        (0, 4, manifest(40239, page_groups=three, request="another", kind="response", draft_prefix_len=17), spec),
        (0, 4, manifest(40239, page_groups=three, schema_version=1, nonce="n\u00f6nce"), spec),
        (1, 1, manifest(600, kind="instruction", media=media, unknown={"z": 1, "a": ["\u00e9", None]}, page_groups=[
            attention(positions=[0, 1, 4], page_tokens=128, zzz=1, page_size=5),
            attention(name="b.attention", positions=[0, 9], page_tokens=64, page_bytes=1),
            recurrent(positions=[0, 7, 4294967295], name="\u00e9t\u00e9", page_tokens=3)]), dict(spec, count=600)),
        (1, 2, manifest(256, page_groups=[attention(positions=[0], page_tokens=256)]), dict(spec, count=256)),
        (1, 2, manifest(257, page_groups=[attention(positions=[0, 1], page_tokens=256)]), dict(spec, count=257)),
        (1, 2, manifest(1, page_groups=[attention(positions=[0], page_tokens=4096), auxiliary(positions=[])]), dict(spec, count=1)),
        (2, 3, manifest(512, page_groups=[]), dict(spec, count=512)),
    ]
    out = []
    for i, world, m, s in cases:
        g = {"identity": identities[i].hex(), "world_size": world, "manifest": json.dumps(m), "tokens": s}
        g.update(generation(identities[i], world, m, make_tokens(s)))
        out.append(g)
    return out


def main():
    docs = documents()
    identities = [bytes.fromhex(d["digest"]) for d in docs]
    print(json.dumps({"documents": docs, "chains": chains(identities[:2]), "generations": generations(identities)},
                     indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
