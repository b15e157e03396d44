// The slots of a row and KV head as the step reads and writes them: numbers, or bytes that are unpacked where they are
// used (../../cache/quantized.py).

#pragma once

#include <algorithm>
#include <cstring>

#include "kernels.h"

namespace {

// A head, normed if the layer does so, and turned to the token's rotation index.
inline void turned_head(const Job &job, const h2o_layer &layer, int token, const float *weight, float *head) {
    const int size = job.frame->head_size;
    if (weight) norm(head, weight, size, job.frame->epsilon, head);
    if (layer.rope < 0) return;
    const ptrdiff_t at = (static_cast<ptrdiff_t>(layer.rope) * job.tokens + token) * job.most_pairs;
    turn(head, job.cosines + at, job.sines + at, job.frame->ropes[layer.rope].pairs, size, head);
}

// The slots of one row and KV head: where they begin in states [R, H, S].
inline ptrdiff_t first_slot(const Job &job, const h2o_slots &slots, int token, int head) {
    return (static_cast<ptrdiff_t>(job.rows[token]) * job.frame->kv_heads + head) * slots.slots;
}

// Numbers as a row of bytes: levels, then their lowest value and step in fp16.
inline void to_bytes(const float *x, int size, int bits, uint8_t *row) {
    const float most = static_cast<float>((1 << bits) - 1);
    float low = x[0], high = x[0];
    for (int i = 1; i < size; ++i) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    uint16_t scale[2] = {to_half(low), to_half((high - low) / most)};
    low = from_half(scale[0]);
    const float step = from_half(scale[1]), by = step > 0 ? step : 1.0f;
    const auto level = [&](int i) {
        const float at = __builtin_nearbyintf((x[i] - low) / by);
        return static_cast<uint8_t>(at > 0 ? at < most ? at : most : 0);
    };
    if (bits == 8)
        for (int i = 0; i < size; ++i) row[i] = level(i);
    else
        for (int i = 0; i < size; i += 2) row[i / 2] = static_cast<uint8_t>(level(i) | level(i + 1) << 4);
    std::memcpy(row + size * bits / 8, scale, sizeof scale);
}

// `kSize` is D where it is known.
template <int bits, int kSize = 0>
inline void from_bytes(const uint8_t *row, int size, float *x) {
    if (kSize) size = kSize;
    const Floats low = splat_half(row + size * bits / 8), step = splat_half(row + size * bits / 8 + 2);
    for (int i = 0; i < size; i += 16) store(x + i, fma(load_levels(row + i * bits / 8, bits), step, low));
}

inline void from_bytes(const uint8_t *row, int bits, int size, float *x) {
    bits == 8 ? from_bytes<8>(row, size, x) : from_bytes<4>(row, size, x);
}

// Unpacks a key and turns it by whole positions, like `turn_by`. If D is known, all pairs are turned.
template <int bits, int kSize = 0>
inline void key_from_bytes(const uint8_t *row, int positions, const float *cosines, const float *sines, int stride,
                           int pairs, int size, float *out) {
    if (kSize) size = kSize, pairs = kSize / 2;
    if (pairs % 16) {
        from_bytes<bits>(row, size, out);
        return turn_by(out, positions, cosines, sines, stride, pairs, size, out);
    }
    const ptrdiff_t at = static_cast<ptrdiff_t>(positions < 0 ? -positions : positions) * stride;
    const Floats low = splat_half(row + size * bits / 8), step = splat_half(row + size * bits / 8 + 2);
    const auto unpacked = [&](int i) { return fma(load_levels(row + i * bits / 8, bits), step, low); };
    const Floats sign = splat(positions < 0 ? -1.0f : 1.0f);
    for (int i = 0; i < pairs; i += 16) {
        const Floats a = unpacked(i), b = unpacked(i + pairs), cosine = load(cosines + at + i);
        const Floats sine = mul(sign, load(sines + at + i));
        store(out + i, fma(a, cosine, sub(splat(0.0f), mul(b, sine))));
        store(out + i + pairs, fma(b, cosine, mul(a, sine)));
    }
    for (int i = 2 * pairs; i < size; i += 16) store(out + i, unpacked(i));
}

// Where a stored key or value [R, H, S, ...] is.
inline uint8_t *stored(const Job &job, void *all, ptrdiff_t slot) {
    const ptrdiff_t size = job.frame->head_size;
    const ptrdiff_t bytes = job.step->kv_bits ? size * job.step->kv_bits / 8 + 4 : size * sizeof(float);
    return static_cast<uint8_t *>(all) + slot * bytes;
}

inline void store_numbers(const Job &job, const float *x, uint8_t *to) {
    if (job.step->kv_bits)
        to_bytes(x, job.frame->head_size, job.step->kv_bits, to);
    else
        std::memcpy(to, x, sizeof(float) * job.frame->head_size);
}

// A KV head's queries are turned; key and value of the token go into the first empty slot.
inline void write_slot(Job &job, const h2o_layer &layer, const h2o_slots &slots, int token, int head) {
    const Sizes of(*job.frame);
    const h2o_step &step = *job.step;
    const int row = job.rows[token];
    float *all = job.qkv + static_cast<ptrdiff_t>(token) * of.rows;
    for (int g = 0; g < of.groups; ++g)
        turned_head(job, layer, token, layer.norm_query, all + (head * of.groups + g) * of.size);
    float *key = all + (of.heads + head) * of.size;
    const float *value = all + (of.heads + of.kv_heads + head) * of.size;
    const ptrdiff_t first = first_slot(job, slots, token, head);
    const ptrdiff_t slot = first + slots.order[first + step.in_use[row]];
    if (step.kv_bits) {
        if (layer.norm_key) norm(key, layer.norm_key, of.size, job.frame->epsilon, key);
        if (layer.rope >= 0) {  // the tables that turn it later do not scale (YaRN does)
            const h2o_rope &rope = job.frame->ropes[layer.rope];
            for (int i = 0; i < 2 * rope.pairs; ++i) key[i] *= rope.scale;
        }
    } else {
        turned_head(job, layer, token, layer.norm_key, key);
    }
    store_numbers(job, key, stored(job, slots.keys, slot));
    store_numbers(job, value, stored(job, slots.values, slot));
    slots.positions[slot] = step.positions[row];
    slots.prompt[slot] = step.of_prompt != 0;
    slots.protect[slot] = step.protect[row];
}

// Bytes that are asked of memory before their turn: rows of bytes are unpacked faster than they come.
constexpr int kAhead = 1024;

// The slots of one row and KV head, as numbers.
struct Held {
    const Job &job;
    const h2o_layer &layer;
    const h2o_slots &slots;
    int size;
    int32_t origin;   // the position whose rotation index is 0
    ptrdiff_t first;
    float *room;  // [kUnpacked, D], where slots hold bytes

    Held(const Job &job, int thread, const h2o_layer &layer, const h2o_slots &slots, int token, int head)
        : job(job), layer(layer), slots(slots), size(job.frame->head_size),
          origin(job.step->positions[job.rows[token]] - job.step->index[job.rows[token]]),
          first(first_slot(job, slots, token, head)) {
        room = job.numbers_held + static_cast<ptrdiff_t>(thread) * (kUnpacked * size + kApart);
    }

    // Rotation index of a kept key: the rules of h2o_chat/cache/distance.py. It is in the tables, whatever a file that was
    // opened says.
    int index_of(ptrdiff_t slot) const {
        const h2o_step &step = *job.step;
        int64_t index = static_cast<int64_t>(slots.positions[slot]) - origin;
        if (step.clamps && slots.clamped[slot])
            index = slots.protect[slot] && slots.positions[slot] >= step.nearer_from ? step.nearer : 0;
        return static_cast<int>(std::clamp<int64_t>(index, -step.farthest, step.farthest));
    }

    // Keys, turned, of slots from s on: where they lie, or `count` of them unpacked into the thread's room.
    const float *keys(int s, int count) const {
        switch (job.step->kv_bits) {
            case 8: return unpacked_keys<8>(s, count);
            case 4: return unpacked_keys<4>(s, count);
            default: return ahead(static_cast<const float *>(slots.keys) + (first + s) * size, count);
        }
    }

    const float *values(int s, int count) const {
        switch (job.step->kv_bits) {
            case 8: return unpacked_values<8>(s, count);
            case 4: return unpacked_values<4>(s, count);
            default: return ahead(static_cast<const float *>(slots.values) + (first + s) * size, count);
        }
    }

    // Numbers where they lie; as many of the slots sixteen further on are asked of memory.
    const float *ahead(const float *from, int count) const {
        for (int i = 0; i < count * size; i += 16) prefetch(from + 16 * size + i);
        return from;
    }

    template <int bits>
    const float *unpacked_keys(int s, int count) const {
        const bool whole = layer.rope >= 0 && 2 * job.frame->ropes[layer.rope].pairs == size;
        if (whole && size == 64) return unpacked_keys<bits, 64>(s, count);
        if (whole && size == 128) return unpacked_keys<bits, 128>(s, count);
        return unpacked_keys<bits, 0>(s, count);
    }

    template <int bits, int kSize>
    const float *unpacked_keys(int s, int count) const {
        const int size = kSize ? kSize : this->size;
        const ptrdiff_t slot = first + s, bytes = size * bits / 8 + 4;
        const uint8_t *row = static_cast<const uint8_t *>(slots.keys) + slot * bytes;
        const ptrdiff_t at = layer.rope * job.table_pairs;
        float *key = room;
        for (int i = 0; i < count; ++i, row += bytes, key += size) {
            prefetch(row + kAhead);
            if (layer.rope < 0 || slots.positions[slot + i] < 0) {
                from_bytes<bits, kSize>(row, size, key);
                continue;
            }
            key_from_bytes<bits, kSize>(row, index_of(slot + i), job.table_cosines + at, job.table_sines + at,
                                        job.most_pairs, job.frame->ropes[layer.rope].pairs, size, key);
        }
        return room;
    }

    template <int bits>
    const float *unpacked_values(int s, int count) const {
        if (size == 64) return unpacked_values<bits, 64>(s, count);
        if (size == 128) return unpacked_values<bits, 128>(s, count);
        return unpacked_values<bits, 0>(s, count);
    }

    template <int bits, int kSize>
    const float *unpacked_values(int s, int count) const {
        const int size = kSize ? kSize : this->size;
        const ptrdiff_t bytes = size * bits / 8 + 4;
        const uint8_t *row = static_cast<const uint8_t *>(slots.values) + (first + s) * bytes;
        for (int i = 0; i < count; ++i, row += bytes) {
            prefetch(row + kAhead);
            from_bytes<bits, kSize>(row, size, room + static_cast<ptrdiff_t>(i) * size);
        }
        return room;
    }
};

}  // namespace
