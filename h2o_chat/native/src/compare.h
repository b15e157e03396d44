// How the kept keys of a KV head stand among one another: h2o_chat/cache/novelty.py, which says what it is for.

#pragma once

#include <cstring>

#include "kernels.h"

namespace {

constexpr int kBlock = 8;  // keys that are compared with a tile at a time

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

// Minus the cosine of each key to the nearest other one, or 0: every pair once.
inline void novelty(const Comparison &of, const float *tiles, float *nearest) {
    const ptrdiff_t tile = static_cast<ptrdiff_t>(of.size) * kTile;
    for (int s = 0; s < of.stride; ++s) nearest[s] = 0;
    for (int s = 0; s < of.slots; s += kBlock) {
        const float *block = tiles + s / kTile * tile + s % kTile;
        Floats most[kBlock];  // of the block's keys so far
        for (Floats &one : most) one = splat(0.0f);
        for (int t = s & ~(kTile - 1); t < of.stride; t += kTile) {
            Floats cosines[kBlock][2];
            tile_products<kBlock>(block, 1, kTile, tiles + t / kTile * tile, of.size, cosines);
            if (s >= t) {
                for (int row = 0; row < kBlock; ++row) {
                    float all[kTile];
                    store(all, cosines[row][0]);
                    store(all + 16, cosines[row][1]);
                    all[s + row - t] = 0;  // itself
                    cosines[row][0] = load(all);
                    cosines[row][1] = load(all + 16);
                }
            }
            Floats low = load(nearest + t), high = load(nearest + t + 16);
            for (int row = 0; row < kBlock; ++row) {
                most[row] = max(most[row], max(cosines[row][0], cosines[row][1]));
                low = max(low, cosines[row][0]);
                high = max(high, cosines[row][1]);
            }
            store(nearest + t, low);
            store(nearest + t + 16, high);
        }
        for (int row = 0; row < kBlock; ++row) {
            const float own = highest(most[row]);
            nearest[s + row] = own > nearest[s + row] ? own : nearest[s + row];
        }
    }
    for (int s = 0; s < of.stride; s += 16) store(nearest + s, sub(splat(0.0f), load(nearest + s)));
}

void compare(Job &job, int thread) {
    const Comparison &of = *job.comparison;
    float *key = of.own + of.own_floats * thread, *found = key + of.size, *tiles = found + of.stride;
    for (int unit; (unit = take(job.team->next, 1, of.layers * of.rows * of.heads)) >= 0;) {
        const int layer = unit / (of.rows * of.heads), here = unit % (of.rows * of.heads);
        const ptrdiff_t first = static_cast<ptrdiff_t>(unit) * of.slots;
        const ptrdiff_t first_key = (static_cast<ptrdiff_t>(layer) * of.key_rows * of.heads + here) * of.slots;
        const int32_t *index = of.index ? of.index + first : nullptr;
        unit_keys(of, layer, of.keys + first_key * of.size, of.positions + first, index, key, tiles);
        distinctness(of, tiles, key, found);
        std::memcpy(of.distinctness + first, found, sizeof(float) * of.slots);
        if (!of.novelty) continue;
        novelty(of, tiles, found);
        std::memcpy(of.novelty + first, found, sizeof(float) * of.slots);
    }
    meet(*job.team);
}

}  // namespace
