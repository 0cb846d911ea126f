import { useState } from 'react';
import { Form } from 'react-aria-components';
import { useChange } from '../../api/live';
import type { Setting } from '../../api/types';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { SelectField } from '../../components/SelectField';
import { TextInput } from '../../components/TextInput';
import { plainValue, rangeText } from '../../lib/settings';

// SettingRow shows a setting and changes it. Changes by other users are shown while the user has typed no value.
export function SettingRow({ setting: s }: { setting: Setting }) {
  const [typed, setTyped] = useState<string | null>(null);
  const change = useChange('settings');
  const current = plainValue(s, s.value);
  const standard = plainValue(s, s.definition.default);
  const value = typed ?? current;
  const send = (next: string) => change.mutate({ method: 'PUT', link: s.links['self'] ?? `/v1/settings/${s.name}`, body: { value: next } }, { onSuccess: () => setTyped(null) });
  const range = rangeText(s);
  return (
    <Form
      className="setting"
      id={s.name}
      onSubmit={(event) => {
        event.preventDefault();
        send(value);
      }}
    >
      <div className="about">
        <h3>
          {s.definition.displayName} {!s.applied && <Badge tone="warn">not applied</Badge>} {s.definition.readOnly && <Badge tone="idle">read-only</Badge>}
        </h3>
        <p>{s.definition.description}</p>
        <p className="small">
          <code>{s.name}</code>
          {range !== '' && ` · ${range}`} · default: {standard === '' ? 'empty' : standard}
          {s.definition.effect !== undefined && s.definition.effect !== '' && ` · effect: ${s.definition.effect}`}
          {s.valueInForce !== undefined && s.valueInForce !== current && ` · value in force: ${s.valueInForce === '' ? 'empty' : s.valueInForce}`}
        </p>
      </div>
      <div className="value">
        <ValueField setting={s} value={value} onChange={setTyped} error={change.error?.message} />
        <div className="actions">
          {value !== standard && !s.definition.readOnly && (
            <Button look="quiet" onPress={() => setTyped(standard)} aria-label={`Reset ${s.definition.displayName} to default`}>
              Reset to default
            </Button>
          )}
          {value !== current && (
            <Button type="submit" look="primary" isDisabled={change.isPending} aria-label={`Save ${s.definition.displayName}`}>
              Save
            </Button>
          )}
        </div>
      </div>
    </Form>
  );
}

function ValueField({ setting: s, value, onChange, error }: { setting: Setting; value: string; onChange: (value: string) => void; error: string | undefined }) {
  const options = s.definition.type === 'bool' ? ['true', 'false'] : (s.definition.options ?? []);
  const label = `Value of ${s.definition.displayName}`;
  if (options.length > 0) {
    return (
      <SelectField
        label={label}
        hideLabel
        value={value}
        options={options.map((o) => [o, o === '' ? 'empty' : o] as const)}
        onChange={onChange}
        isDisabled={s.definition.readOnly}
        error={error}
      />
    );
  }
  return <TextInput label={label} hideLabel value={value} onChange={onChange} isDisabled={s.definition.readOnly} inputMode={s.definition.type === 'int' ? 'numeric' : 'text'} error={error} />;
}
