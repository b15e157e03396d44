// Lays tensors of GGUF files out in tiles (weights.h): every level and scale stays what the file says.

#include <cmath>
#include <cstddef>
#include <cstring>

#include "lanes_plain.h"
#include "weights.h"

namespace {

constexpr uint16_t kNotFinite = 0x7c00;

// One group of a row: 32 levels, and what its scales are made of.
struct Group {
    uint8_t levels[32];
    uint16_t unit, other;  // fp16: the scale, or that of scales and of minima; the minimum is subtracted
    uint8_t scale, second;  // of blocks: scale and minimum, or the scales of both halves + 128
};

uint16_t half_at(const uint8_t *from) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return half;
}

// Low halves of 16 bytes, then high halves.
void halves_of(const uint8_t *bytes, uint8_t *levels) {
    for (int i = 0; i < 16; ++i) {
        levels[i] = bytes[i] & 15;
        levels[16 + i] = bytes[i] >> 4;
    }
}

// Adds the highest bits of 32 levels.
void add_bits(const uint8_t *bytes, uint8_t *levels) {
    for (int i = 0; i < 32; ++i) levels[i] |= static_cast<uint8_t>((bytes[i / 8] >> i % 8 & 1) << 4);
}

// 6 bits of scale and minimum of group g of eight, from 12 bytes.
void scale_and_minimum(const uint8_t *from, int g, Group &to) {
    if (g < 4) {
        to.scale = from[g] & 63;
        to.second = from[g + 4] & 63;
    } else {
        to.scale = static_cast<uint8_t>((from[g + 4] & 15) | from[g - 4] >> 6 << 4);
        to.second = static_cast<uint8_t>(from[g + 4] >> 4 | from[g] >> 6 << 4);
    }
}

// Group g of a row; the formats are ggml's (ggml-common.h there).
template <int kind>
void read_group(const uint8_t *row, int g, Group &to) {
    if constexpr (kind == H2O_MXFP4) {  // sign, 0 to 6 by a table; twice that is whole, and so the scale is halved
        constexpr uint8_t twice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
        const uint8_t *from = row + g * 17;
        halves_of(from + 1, to.levels);
        for (uint8_t &level : to.levels)
            level = static_cast<uint8_t>(level < 8 ? 16 + twice[level] : 16 - twice[level - 8]);
        const float scale = std::ldexp(1.0f, *from - 128);
        to.unit = *from == 255 || scale > 65504.0f ? kNotFinite : to_half(scale);
    } else if constexpr (kind == H2O_Q4_0 || kind == H2O_Q4_1 || kind == H2O_Q5_0 || kind == H2O_Q5_1) {
        constexpr int head = has_minimum(kind) ? 4 : 2, bits = level_bits(kind) == 5 ? 4 : 0;
        const uint8_t *from = row + g * (head + bits + 16);
        to.unit = half_at(from);
        to.other = has_minimum(kind) ? half_at(from + 2) ^ 0x8000 : 0;  // there it is added
        halves_of(from + head + bits, to.levels);
        if (bits) add_bits(from + head, to.levels);
    } else if constexpr (kind == H2O_Q8_0) {
        const uint8_t *from = row + g * 34;
        to.unit = half_at(from);
        for (int i = 0; i < 32; ++i) to.levels[i] = from[2 + i] ^ 128;
    } else if constexpr (kind == H2O_Q4_K || kind == H2O_Q5_K) {
        constexpr int bits = kind == H2O_Q5_K ? 32 : 0;
        const uint8_t *block = row + g / 8 * (144 + bits), *low = block + 16 + bits + g % 8 / 2 * 32;
        to.unit = half_at(block);
        to.other = half_at(block + 2);
        scale_and_minimum(block + 4, g % 8, to);
        const int shift = g % 2 * 4, bit = g % 8;
        for (int i = 0; i < 32; ++i) to.levels[i] = low[i] >> shift & 15;
        for (int i = 0; i < bits; ++i) to.levels[i] |= static_cast<uint8_t>((block[16 + i] >> bit & 1) << 4);
    } else {
        static_assert(kind == H2O_Q6_K);
        const uint8_t *block = row + g / 8 * 210, *low = block + g % 8 / 4 * 64 + g % 2 * 32;
        const uint8_t *high = block + 128 + g % 8 / 4 * 32, *scales = block + 192 + g % 8 * 2;
        to.unit = half_at(block + 208);
        to.scale = scales[0] ^ 128;
        to.second = scales[1] ^ 128;
        const int shift = g % 4 / 2 * 4, two = g % 4 * 2;
        for (int i = 0; i < 32; ++i)
            to.levels[i] = static_cast<uint8_t>((low[i] >> shift & 15) | (high[i] >> two & 3) << 4);
    }
}

float number_at(int kind, const uint8_t *row, int column) {
    uint32_t bits = 0;
    std::memcpy(&bits, row + column * (kind == H2O_F32 ? 4 : 2), kind == H2O_F32 ? 4 : 2);
    if (kind == H2O_F16) return from_half(static_cast<uint16_t>(bits));
    if (kind == H2O_BF16) bits <<= 16;
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

// Rounded as ../rounding.py does; columns behind the row's are 0.
template <int kind>
void round_group(const uint8_t *row, int g, int columns, Group &to) {
    float numbers[32], most = 0;
    for (int i = 0; i < 32; ++i) {
        numbers[i] = 32 * g + i < columns ? number_at(kind, row, 32 * g + i) : 0.0f;
        const float size = std::fabs(numbers[i]);
        most = size > most || size != size ? size : most;  // none stays
    }
    to.unit = to_half(most / 127.0f);
    const float scale = from_half(to.unit), by = scale == 0 ? 0.0f : 1.0f / scale;
    if ((to.unit & kNotFinite) == kNotFinite) return;
    constexpr float whole = 12582912.0f;  // 1.5 * 2^23: added and taken off, it rounds halves to the even number
    for (int i = 0; i < 32; ++i) {
        const float exact = numbers[i] * by, near = exact < -127.0f ? -127.0f : exact > 127.0f ? 127.0f : exact;
        to.levels[i] = static_cast<uint8_t>(static_cast<int>(near + whole - whole) + 128);
    }
}

uint32_t word_at(const uint8_t *from) {
    uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

void put_word(uint8_t *to, uint32_t word) { std::memcpy(to, &word, sizeof word); }

// Row r of a tile's group.
template <int kind>
void put_levels(const uint8_t *levels, int r, uint8_t *group) {
    constexpr int bits = level_bits(kind);
    uint32_t planes[2] = {};
    for (int j = 0; j < (bits == 8 ? 8 : 4); ++j) {
        const uint32_t low = word_at(levels + 4 * j), high = bits == 8 ? 0 : word_at(levels + 16 + 4 * j);
        put_word(group + 64 * j + 4 * r, bits == 8 ? low : (low & 0x0f0f0f0f) | (high & 0x0f0f0f0f) << 4);
        if (bits == 5) planes[0] |= (low >> 4 & 0x01010101) << j | (high >> 4 & 0x01010101) << (4 + j);
        if (bits == 6) {
            planes[0] |= (low >> 4 & 0x03030303) << 2 * j;
            planes[1] |= (high >> 4 & 0x03030303) << 2 * j;
        }
    }
    for (int plane = 0; bits < 8 && plane < bits - 4; ++plane) put_word(group + 256 + 64 * plane + 4 * r, planes[plane]);
}

// Scales of row r of a tile's group g.
template <int kind>
void put_scales(const Group &from, int r, int g, uint8_t *scales) {
    if constexpr (has_blocks(kind)) {
        uint8_t *block = scales + g / 8 * 8 * scales_bytes(kind), *own = block + (has_halves(kind) ? 32 : 64) + g % 8 * 32;
        std::memcpy(block + 2 * r, &from.unit, 2);
        if (!has_halves(kind)) std::memcpy(block + 32 + 2 * r, &from.other, 2);
        own[r] = from.scale;
        own[16 + r] = from.second;
    } else {
        std::memcpy(scales + g * scales_bytes(kind) + 2 * r, &from.unit, 2);
        if (has_minimum(kind)) std::memcpy(scales + g * scales_bytes(kind) + 32 + 2 * r, &from.other, 2);
    }
}

template <int from>
int32_t lay_out(int32_t columns, int32_t tiles, int32_t every, const uint8_t *rows, const int32_t *order, uint8_t *weights,
                uint8_t *scales) {
    constexpr bool numbers = from == H2O_F32 || from == H2O_F16 || from == H2O_BF16;
    constexpr int to = numbers ? H2O_Q8_0 : from == H2O_MXFP4 ? H2O_Q5_0 : from;
    // Bytes of so many columns.
    constexpr int block = numbers ? 1 : has_blocks(to) ? 256 : 32;
    constexpr int bytes = from == H2O_F32    ? 4
                          : numbers          ? 2
                          : from == H2O_MXFP4 ? 17
                          : from == H2O_Q4_0 ? 18
                          : from == H2O_Q4_1 ? 20
                          : from == H2O_Q5_0 ? 22
                          : from == H2O_Q5_1 ? 24
                          : from == H2O_Q8_0 ? 34
                          : from == H2O_Q4_K ? 144
                          : from == H2O_Q5_K ? 176
                                             : 210;
    const ptrdiff_t row_bytes = static_cast<ptrdiff_t>(columns / block) * bytes, groups = (columns + 31) / 32;
    bool finite = true;
    for (int tile = 0; tile < tiles; ++tile) {
        uint8_t *levels = weights + static_cast<ptrdiff_t>(tile) * every * groups * levels_bytes(to);
        uint8_t *own = scales + static_cast<ptrdiff_t>(tile) * every * groups * scales_bytes(to);
        for (int g = 0; g < groups; ++g, levels += levels_bytes(to))
            for (int r = 0; r < 16; ++r) {
                Group group = {};
                const int32_t row = order[16 * tile + r];
                if (row >= 0) {
                    const uint8_t *at = rows + row * row_bytes;
                    if constexpr (numbers)
                        round_group<from>(at, g, columns, group);
                    else
                        read_group<from>(at, g, group);
                }
                finite = finite && (group.unit & kNotFinite) != kNotFinite && (group.other & kNotFinite) != kNotFinite;
                put_levels<to>(group.levels, r, levels);
                put_scales<to>(group, r, g, own);
            }
    }
    return !finite;
}

}  // namespace

int32_t h2o_lay_out(int32_t kind, int32_t columns, int32_t tiles, int32_t every, const uint8_t *rows,
                    const int32_t *order, uint8_t *weights, uint8_t *scales) {
    switch (kind) {
        case H2O_F32: return lay_out<H2O_F32>(columns, tiles, every, rows, order, weights, scales);
        case H2O_F16: return lay_out<H2O_F16>(columns, tiles, every, rows, order, weights, scales);
        case H2O_BF16: return lay_out<H2O_BF16>(columns, tiles, every, rows, order, weights, scales);
        case H2O_Q4_0: return lay_out<H2O_Q4_0>(columns, tiles, every, rows, order, weights, scales);
        case H2O_Q4_1: return lay_out<H2O_Q4_1>(columns, tiles, every, rows, order, weights, scales);
        case H2O_Q5_0: return lay_out<H2O_Q5_0>(columns, tiles, every, rows, order, weights, scales);
        case H2O_Q5_1: return lay_out<H2O_Q5_1>(columns, tiles, every, rows, order, weights, scales);
        case H2O_Q8_0: return lay_out<H2O_Q8_0>(columns, tiles, every, rows, order, weights, scales);
        case H2O_Q4_K: return lay_out<H2O_Q4_K>(columns, tiles, every, rows, order, weights, scales);
        case H2O_Q5_K: return lay_out<H2O_Q5_K>(columns, tiles, every, rows, order, weights, scales);
        case H2O_Q6_K: return lay_out<H2O_Q6_K>(columns, tiles, every, rows, order, weights, scales);
        case H2O_MXFP4: return lay_out<H2O_MXFP4>(columns, tiles, every, rows, order, weights, scales);
        default: return 2;
    }
}
