import { parseSize } from '../lib/size';
import { TextInput } from './TextInput';

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
  error?: string | undefined;
  description?: string;
  takesFocus?: boolean;
}

// SizeInput takes a size as people write it; what it says of it is what will be asked for.
export function SizeInput({ label, value, onChange, error, description, takesFocus }: Props) {
  const parsed = parseSize(value);
  return (
    <TextInput
      label={label}
      value={value}
      onChange={onChange}
      error={error ?? (value !== '' && value.trim() !== '0' && 'error' in parsed ? parsed.error : undefined)}
      description={description ?? 'A number with Mi, Gi, Ti (or M, G, T), as 10Gi'}
      {...(takesFocus ? { takesFocus } : {})}
    />
  );
}
