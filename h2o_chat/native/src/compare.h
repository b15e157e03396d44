// How the kept keys of a KV head stand among one another: h2o_chat/cache/novelty.py, which says what it is for.

#pragma once

#include <cstring>

#include "kernels.h"

namespace {

// Keys before RoPE, of length 1, in tiles; an empty slot is 0.
inline void unit_keys(const Comparison &of, int layer, const float *keys, const int32_t *positions, const int32_t *index,
                      float *key, float *tiles) {
    const h2o_rope *rope = of.ropes[layer];
    for (int s = 0; s < of.stride; ++s) {
        float *to = tiles + static_cast<ptrdiff_t>(s / kTile) * of.size * kTile + s % kTile;
        if (s >= of.slots || positions[s] < 0) {
            for (int i = 0; i < of.size; ++i) to[i * kTile] = 0;
            continue;
        }
        const float *from = keys + static_cast<ptrdiff_t>(s) * of.size;
        prefetch(from + 16 * of.size);
        if (rope && index) {
            const ptrdiff_t at = (rope - of.first_rope) * of.table_pairs;
            turn_by(from, -index[s], of.cosines + at, of.sines + at, of.most_pairs, rope->pairs, of.size,
                    key);
            from = key;
        }
        const float length = __builtin_sqrtf(dot(from, from, of.size));
        const float by = 1.0f / (length > 1e-12f ? length : 1e-12f);
        for (int i = 0; i < of.size; ++i) to[i * kTile] = from[i] * by;
    }
}

// Minus the cosine of each key to the mean of all.
inline void distinctness(const Comparison &of, const float *tiles, float *mean, float *out) {
    const ptrdiff_t tile = static_cast<ptrdiff_t>(of.size) * kTile;
    const int count = of.stride / kTile;
    float squares = 0;
    for (int i = 0; i < of.size; ++i) {
        Floats all = splat(0.0f);
        for (int t = 0; t < count; ++t)
            for (int part = 0; part < kTile; part += 16) all = add(all, load(tiles + t * tile + i * kTile + part));
        mean[i] = sum(all);
        squares = fma(mean[i], mean[i], squares);
    }
    const float length = __builtin_sqrtf(squares), by = -1.0f / (length > 1e-12f ? length : 1e-12f);
    for (int s = 0; s < of.stride; s += 16) {
        const float *keys = tiles + s / kTile * tile + s % kTile;
        Floats cosines = splat(0.0f);
        for (int i = 0; i < of.size; ++i) cosines = fma(load(keys + i * kTile), splat(mean[i]), cosines);
        store(out + s, mul(cosines, splat(by)));
    }
}

// A thread's room.
struct Compared {
    float *key;      // [D] one key, or the mean of all
    float *block;    // [kBlock, D]
    float *found;    // [stride] distinctness; then the cosine of each key to the nearest other one, or 0
    int32_t *fresh;  // [stride] slots whose keys are compared with all others
    int32_t *nearest;  // [stride] to each key the slot of the nearest other one; -1: never compared
    float *tiles;    // [stride / 32, D, 32] keys of length 1, components side by side

    Compared(const Comparison &of, int thread) : key(of.own + of.own_floats * thread) {
        block = key + of.size;
        found = block + kBlock * of.size;
        fresh = reinterpret_cast<int32_t *>(found + of.stride);
        nearest = fresh + of.stride;
        tiles = reinterpret_cast<float *>(nearest + of.stride);
    }
};

// Which slots hold a key that was never compared, or whose nearest one has left: in its slot is a key that was never
// compared, or none. Their number.
inline int fresh_keys(const Comparison &of, const int32_t *positions, const Compared &own) {
    const int32_t *nearest = own.nearest;
    int count = 0;
    for (int s = 0; s < of.slots; ++s) {
        const bool known = nearest[s] >= 0 && nearest[s] < of.slots && nearest[nearest[s]] >= 0;
        if (positions[s] >= 0 && !known) own.fresh[count++] = s;
    }
    return count;
}

// One key of a slot, compared with those of a tile: it may be their nearest one, one of them may be its own.
inline void nearer(int own, int tile, float *cosines, float *most, int32_t *nearest) {
    if (own / kTile == tile) cosines[own % kTile] = 0;  // itself
    const int first = tile * kTile;
    for (int i = 0; i < kTile; ++i) {
        const bool is_nearer = cosines[i] > most[first + i];
        most[first + i] = is_nearer ? cosines[i] : most[first + i];
        nearest[first + i] = is_nearer ? own : nearest[first + i];
    }
    const float best = highest(max(load(cosines), load(cosines + 16)));
    if (!(best > most[own])) return;
    most[own] = best;
    for (int i = kTile - 1; i >= 0; --i)
        if (cosines[i] == best) nearest[own] = first + i;
}

// Brings `found` and `nearest` up to date; a key that all others point away from is its own nearest one. Only fresh keys
// are compared with all others, each pair of them once.
inline void novelty(const Comparison &of, const int32_t *positions, const Compared &own) {
    const int size = of.size, count = fresh_keys(of, positions, own), tiles = of.stride / kTile;
    for (int i = 0; i < count; ++i) {
        own.found[own.fresh[i]] = 0;
        own.nearest[own.fresh[i]] = own.fresh[i];
    }
    int known = 0;  // the first slot in use that is not fresh
    for (int i = 0; known < of.slots && (positions[known] < 0 || (i < count && own.fresh[i] == known)); ++known)
        i += positions[known] >= 0;
    for (int first = 0; first < count; first += kBlock) {
        const int some = count - first < kBlock ? count - first : kBlock;
        for (int row = 0; row < some; ++row) {
            const int s = own.fresh[first + row];
            const float *key = own.tiles + static_cast<ptrdiff_t>(s / kTile) * size * kTile + s % kTile;
            for (int i = 0; i < size; ++i) own.block[row * size + i] = key[i * kTile];
        }
        // Keys of tiles before were compared with these already, if all are fresh.
        const int before = (known < own.fresh[first] ? known : own.fresh[first]) / kTile;
        for (int t = before; t < tiles; ++t) {
            Floats cosines[kBlock][2];
            tile_products<kBlock>(own.block, size, 1, own.tiles + static_cast<ptrdiff_t>(t) * size * kTile, size, cosines);
            for (int row = 0; row < some; ++row) {
                float all[kTile];
                store(all, cosines[row][0]);
                store(all + 16, cosines[row][1]);
                nearer(own.fresh[first + row], t, all, own.found, own.nearest);
            }
        }
    }
}

void compare(Job &job, int thread) {
    const Comparison &of = *job.comparison;
    const Compared own(of, thread);
    for (int unit; (unit = take(job.team->next, 1, of.layers * of.rows * of.heads)) >= 0;) {
        const int layer = unit / (of.rows * of.heads), here = unit % (of.rows * of.heads);
        const ptrdiff_t first = static_cast<ptrdiff_t>(unit) * of.slots;
        const ptrdiff_t first_key = (static_cast<ptrdiff_t>(layer) * of.key_rows * of.heads + here) * of.slots;
        const int32_t *index = of.index ? of.index + first : nullptr, *positions = of.positions + first;
        unit_keys(of, layer, of.keys + first_key * of.size, positions, index, own.key, own.tiles);
        distinctness(of, own.tiles, own.key, own.found);
        std::memcpy(of.distinctness + first, own.found, sizeof(float) * of.slots);
        if (!of.novelty) continue;
        for (int s = 0; s < of.stride; ++s) {
            const bool known = of.nearest && s < of.slots && positions[s] >= 0;
            own.found[s] = known ? 0.0f - of.novelty[first + s] : 0.0f;
            own.nearest[s] = known ? of.nearest[first + s] : -1;
        }
        novelty(of, positions, own);
        for (int s = 0; s < of.slots; ++s) of.novelty[first + s] = 0.0f - own.found[s];
        if (of.nearest) std::memcpy(of.nearest + first, own.nearest, sizeof(int32_t) * of.slots);
    }
    meet(*job.team);
}

}  // namespace
