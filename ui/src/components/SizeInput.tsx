import { useState } from 'react';
import { parseSize, understood, type Parsed, type Rules } from '../lib/size';
import { TextInput } from './TextInput';

// SizeField is a size in a form: its text, and the size that the text means.
export interface SizeField {
  text: string;
  setText: (text: string) => void;
  parsed: Parsed;
}

// useSize is the state of a size in a form. The form must not be sent while parsed is an error.
export function useSize(initial: string, rules: Rules): SizeField {
  const [text, setText] = useState(initial);
  return { text, setText, parsed: parseSize(text, rules) };
}

interface Props {
  label: string;
  size: SizeField;
  // refusal is the API's text about the size that it refused.
  refusal?: string | undefined;
  // note is an additional text for a valid size.
  note?: string | undefined;
  takesFocus?: boolean;
}

// SizeInput is an input for a size. Before the form is sent, it shows which size the text means, or why the text is
// refused.
export function SizeInput({ label, size, refusal, note, takesFocus }: Props) {
  const { text, setText, parsed } = size;
  const wrong = 'error' in parsed ? parsed.error : undefined;
  return (
    <TextInput
      label={label}
      value={text}
      onChange={setText}
      error={text === '' ? undefined : wrong}
      refusal={refusal}
      description={'error' in parsed ? 'A number with a unit: Mi, Gi, Ti, M, G or T. Example: 10Gi' : [understood(parsed), note].filter((t) => t !== undefined).join('. ')}
      {...(takesFocus ? { takesFocus } : {})}
    />
  );
}
