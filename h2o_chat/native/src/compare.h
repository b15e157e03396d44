// How the kept keys of a KV head stand among one another: h2o_chat/cache/novelty.py, which says what it is for.

#pragma once

#include <cstring>

#include "kernels.h"

namespace {

constexpr int kBlock = 8, kParts = 2;  // keys that are compared at a time with 32 others

// Keys before RoPE, of length 1, as columns [D, stride]; an empty slot is 0.
inline void unit_keys(const Comparison &of, int layer, ptrdiff_t first, float *key, float *columns) {
    const h2o_rope *rope = of.ropes[layer];
    for (int s = 0; s < of.stride; ++s) {
        if (s >= of.slots || of.positions[first + s] < 0) {
            for (int i = 0; i < of.size; ++i) columns[i * of.stride + s] = 0;
            continue;
        }
        const float *from = of.keys + (first + s) * of.size;
        if (rope && of.index) {
            const ptrdiff_t at = (rope - of.first_rope) * of.table_pairs;
            turn_by(from, -of.index[first + s], of.cosines + at, of.sines + at, of.most_pairs, rope->pairs, of.size,
                    key);
            from = key;
        }
        const float length = __builtin_sqrtf(dot(from, from, of.size));
        const float by = 1.0f / (length > 1e-12f ? length : 1e-12f);
        for (int i = 0; i < of.size; ++i) columns[i * of.stride + s] = from[i] * by;
    }
}

// Minus the cosine of each key to the mean of all.
inline void distinctness(const Comparison &of, const float *columns, float *mean, float *out) {
    float squares = 0;
    for (int i = 0; i < of.size; ++i) {
        Floats all = splat(0.0f);
        for (int s = 0; s < of.stride; s += 16) all = add(all, load(columns + i * of.stride + s));
        mean[i] = sum(all);
        squares = fma(mean[i], mean[i], squares);
    }
    const float length = __builtin_sqrtf(squares), by = -1.0f / (length > 1e-12f ? length : 1e-12f);
    for (int s = 0; s < of.stride; s += 16) {
        Floats cosines = splat(0.0f);
        for (int i = 0; i < of.size; ++i)
            cosines = fma(load(columns + i * of.stride + s), splat(mean[i]), cosines);
        store(out + s, mul(cosines, splat(by)));
    }
}

// Minus the cosine of each key to the nearest other one, or 0: every pair once.
inline void novelty(const Comparison &of, const float *columns, float *nearest) {
    for (int s = 0; s < of.stride; ++s) nearest[s] = 0;
    for (int s = 0; s < of.slots; s += kBlock) {
        for (int t = s & ~(16 * kParts - 1); t < of.stride; t += 16 * kParts) {
            Floats cosines[kBlock][kParts];
            for (auto &row : cosines)
                for (Floats &one : row) one = splat(0.0f);
            for (int i = 0; i < of.size; ++i) {
                const float *column = columns + i * of.stride;
                const Floats others[kParts] = {load(column + t), load(column + t + 16)};
                for (int row = 0; row < kBlock; ++row) {
                    const Floats mine = splat(column[s + row]);
                    for (int part = 0; part < kParts; ++part)
                        cosines[row][part] = fma(mine, others[part], cosines[row][part]);
                }
            }
            for (int row = 0; row < kBlock; ++row) {
                float all[16 * kParts];
                for (int part = 0; part < kParts; ++part) store(all + 16 * part, cosines[row][part]);
                if (s + row >= t && s + row < t + 16 * kParts) all[s + row - t] = 0;  // itself
                Floats most = splat(nearest[s + row]);
                for (int part = 0; part < kParts; ++part) {
                    const Floats some = load(all + 16 * part);
                    most = max(most, some);
                    store(nearest + t + 16 * part, max(load(nearest + t + 16 * part), some));
                }
                const float own = highest(most);
                nearest[s + row] = own > nearest[s + row] ? own : nearest[s + row];
            }
        }
    }
    for (int s = 0; s < of.stride; s += 16) store(nearest + s, sub(splat(0.0f), load(nearest + s)));
}

void compare(Job &job, int thread) {
    const Comparison &of = *job.comparison;
    float *key = of.own + of.own_floats * thread, *found = key + of.size, *columns = found + of.stride;
    for (int unit; (unit = take(job.team->next, 1, of.layers * of.rows * of.heads)) >= 0;) {
        const ptrdiff_t first = static_cast<ptrdiff_t>(unit) * of.slots;
        unit_keys(of, unit / (of.rows * of.heads), first, key, columns);
        distinctness(of, columns, key, found);
        std::memcpy(of.distinctness + first, found, sizeof(float) * of.slots);
        if (!of.novelty) continue;
        novelty(of, columns, found);
        std::memcpy(of.novelty + first, found, sizeof(float) * of.slots);
    }
    meet(*job.team);
}

}  // namespace
